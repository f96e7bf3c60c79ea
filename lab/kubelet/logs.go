package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// logs answers GET /containerLogs: follow, tailLines, sinceSeconds, sinceTime and timestamps, as
// k8s.io/api/core/v1.PodLogOptions has them.
func (p *pod) logs(response http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	from := p.Containers[request.PathValue("container")]
	line, err := p.enter(from.command(query.Get("tailLines"), query.Get("follow") == "true"))
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	since, err := since(query.Get("sinceSeconds"), query.Get("sinceTime"))
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	reading := exec.CommandContext(request.Context(), line[0], line[1:]...)
	reading.WaitDelay = drain
	output, err := reading.StdoutPipe()
	if err == nil {
		err = reading.Start()
	}
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.Header().Set("Content-Type", "text/plain")
	flusher := http.NewResponseController(response)
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	written := time.Now()
	for lines.Scan() {
		text := lines.Text()
		if moment, rest, ok := from.split(text); ok {
			written, text = moment, rest
		}
		if written.Before(since) {
			continue
		}
		if query.Get("timestamps") == "true" {
			text = written.UTC().Format(time.RFC3339Nano) + " " + text
		}
		if _, err := fmt.Fprintln(response, text); err != nil {
			break
		}
		_ = flusher.Flush()
	}
	_ = reading.Process.Kill()
	_ = reading.Wait()
}

// command returns what prints the log in the machine.
func (s source) command(lines string, follow bool) []string {
	if s.File != "" {
		if lines == "" {
			lines = "+1"
		}
		command := []string{"tail", "--quiet", "--lines=" + lines}
		if follow {
			command = append(command, "--follow=name", "--retry")
		}
		return append(command, "--", s.File)
	}
	if lines == "" {
		lines = "all"
	}
	command := []string{"journalctl", "--quiet", "--no-pager", "--output=short-unix", "--unit=" + s.Unit, "--lines=" + lines}
	if follow {
		command = append(command, "--follow")
	}
	return command
}

// split returns the time of a line, where it has one, and the text that the daemon wrote.
func (s source) split(line string) (time.Time, string, bool) {
	first, rest, _ := strings.Cut(line, " ")
	if s.File != "" { // [2026-11-22T05:48:31.123], as Slurm's daemons write; machines keep UTC
		moment, err := time.Parse("[2006-01-02T15:04:05.999]", first)
		return moment, line, err == nil
	}
	seconds, err := strconv.ParseFloat(first, 64)
	return time.UnixMicro(int64(seconds * 1e6)), rest, err == nil
}

// since returns the moment before which lines are left out.
func since(seconds, moment string) (time.Time, error) {
	if moment != "" {
		return time.Parse(time.RFC3339, moment)
	}
	if seconds == "" {
		return time.Time{}, nil
	}
	number, err := strconv.Atoi(seconds)
	return time.Now().Add(-time.Duration(number) * time.Second), err
}
