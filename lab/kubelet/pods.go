package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// A pod of the table that the operator writes, by `namespace/name`.
type pod struct {
	name string
	// Process is the file in which the machine's process is on record (components/local/host/process.py).
	Process string `json:"process"`
	// Containers has a log for each container, by its name.
	Containers map[string]source `json:"containers"`
}

// Where a container's log is in the machine: a file, or the journal of a unit.
type source struct {
	File string `json:"file"`
	Unit string `json:"unit"`
}

// find returns the pod of a request, as the table has it now.
func find(table string, request *http.Request) (*pod, error) {
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, err
	}
	var pods map[string]*pod
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	name, container := request.PathValue("pod"), request.PathValue("container")
	found := pods[request.PathValue("namespace")+"/"+name]
	if found == nil {
		return nil, fmt.Errorf("pod %q has no machine here: it stands in, and neither has a log nor runs commands", name)
	}
	if _, there := found.Containers[container]; !there {
		return nil, fmt.Errorf("container not found (%q)", container)
	}
	found.name = name
	return found, nil
}

// enter returns the command line that runs a command in the machine's namespaces.
func (p *pod) enter(command []string) ([]string, error) {
	first, err := p.first()
	if err != nil {
		return nil, err
	}
	return append([]string{"nsenter", "--target", strconv.Itoa(first), "--all", "--"}, command...), nil
}

// first returns the process that is number 1 in the machine.
func (p *pod) first() (int, error) {
	text, err := os.ReadFile(p.Process)
	if err != nil {
		return 0, fmt.Errorf("pod %q: its machine does not run: %w", p.name, err)
	}
	var record struct {
		Pid     int    `json:"pid"`
		Started uint64 `json:"started"`
		Boot    string `json:"boot"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return 0, fmt.Errorf("%s: %w", p.Process, err)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if record.Boot == strings.TrimSpace(string(boot)) && record.Started == started(record.Pid) {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", record.Pid, record.Pid))
		for _, child := range strings.Fields(string(children)) {
			if number, _ := strconv.Atoi(child); isFirst(number) {
				return number, nil
			}
		}
	}
	return 0, fmt.Errorf("pod %q: its machine does not run", p.name)
}

// started returns when a process started, in clock ticks since boot (field 22 of proc(5)'s stat); 0 if there is none.
func started(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// Fields are counted from behind the command's name, which is in brackets and may have spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

// isFirst returns whether a process is number 1 of a PID namespace below this one.
func isFirst(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(text), "\n") {
		if numbers, there := strings.CutPrefix(line, "NSpid:"); there {
			all := strings.Fields(numbers)
			return len(all) > 1 && all[len(all)-1] == "1"
		}
	}
	return false
}
