//go:build tools

// Package tools lists the programs that are built from this module.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
