#!/bin/sh
# What this server and the others are, then the image's own program, which brings up its part.
set -eu
umask 022
cat >/etc/loci.conf.new <<'END'
[default]
Version: 2.1.0
Deployment: cloud
FilesystemTable: cloud-fs-config
StartupTable: cloud-startup-config
Profile: custom
FsName: exacloud
MgsType: n2-standard-2
MgsCount: 1
MgtType: pd-standard
MgtSize: 128
MgtCount: 1
MgtRaid: false
MntType: pd-standard
MntSize: 128
MntCount: 1
MntRaid: false
MdsType: n2-standard-2
MdsCount: 1
MdtType: pd-ssd
MdtSize: 256
MdtCount: 1
MdtRaid: false
OssType: n2-standard-2
OssCount: 1
OstType: pd-standard
OstSize: 512
OstCount: 1
OstRaid: false
END
mv /etc/loci.conf.new /etc/loci.conf
loci init
