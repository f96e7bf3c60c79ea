package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// drain is how long output is read after a command has ended, while a process that it left behind keeps its streams.
const drain = 5 * time.Second

// ExecInContainer runs a command in the pod's machine, as root, as the container's own processes are.
func (p *pod) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, command []string,
	in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	line, problem := p.enter(command)
	if problem != nil {
		return problem
	}
	running := exec.CommandContext(ctx, line[0], line[1:]...)
	running.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "HOSTNAME=" + p.name,
	}
	running.WaitDelay = drain
	if tty {
		running.Env = append(running.Env, "TERM=xterm")
		return status(p.onTerminal(running, in, out, resize))
	}
	running.Stdout, running.Stderr = writer(out), writer(err)
	if in == nil {
		return status(running.Run())
	}
	// Not running.Stdin: Wait would wait for the client to end its input, also after the command has ended.
	pipe, problem := running.StdinPipe()
	if problem != nil {
		return problem
	}
	if problem := running.Start(); problem != nil {
		return problem
	}
	go func() {
		_, _ = io.Copy(pipe, in)
		pipe.Close()
	}()
	return status(running.Wait())
}

func writer(stream io.WriteCloser) io.Writer {
	if stream == nil { // an interface that holds nil is not nil
		return nil
	}
	return stream
}

// onTerminal runs a command on a terminal of its own. When the client goes away, the command gets a hangup.
func (p *pod) onTerminal(running *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, own, err := p.terminal()
	if err != nil {
		return err
	}
	defer terminal.Close()
	running.Stdin, running.Stdout, running.Stderr = own, own, own
	running.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = running.Start()
	own.Close()
	if err != nil {
		return err
	}
	go func() {
		for size := range resize {
			_ = unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
		}
	}()
	if in != nil {
		go func() {
			_, _ = io.Copy(terminal, in)
			// The leader of the session, once it has not ended: its number may be another process's then. The kernel
			// tells the others.
			_ = running.Process.Signal(syscall.SIGHUP)
		}()
	}
	printed := make(chan struct{})
	go func() {
		_, _ = io.Copy(out, terminal)
		close(printed)
	}()
	result := running.Wait()
	select {
	case <-printed:
	case <-time.After(drain):
	}
	return result
}

// terminal opens a terminal of the machine's own, so that programs there find its name: both of its ends.
func (p *pod) terminal() (*os.File, *os.File, error) {
	first, err := p.first()
	if err != nil {
		return nil, nil, err
	}
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", first))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	// A link that root of the machine puts in the way would lead to the host's files.
	how := unix.OpenHow{Flags: unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	opened, err := unix.Openat2(int(root.Fd()), "dev/pts/ptmx", &how)
	if err != nil {
		return nil, nil, err
	}
	outer := os.NewFile(uintptr(opened), "terminal")
	if err := unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		outer.Close()
		return nil, nil, err
	}
	inner, _, number := unix.Syscall(unix.SYS_IOCTL, outer.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if number != 0 {
		outer.Close()
		return nil, nil, number
	}
	return outer, os.NewFile(inner, "terminal"), nil
}

// status turns the end of a command into what the streaming server sends as its exit code.
func status(err error) error {
	var ended *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left a process behind
		return nil
	case !errors.As(err, &ended):
		return err
	}
	code := ended.ExitCode()
	if waited, ok := ended.Sys().(syscall.WaitStatus); ok && waited.Signaled() {
		code = 128 + int(waited.Signal())
	}
	return utilexec.CodeExitError{Err: ended, Code: code}
}
