package bench

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestOwnProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	pid := os.Getpid()
	before, ok := cpuOf(pid)
	if !ok {
		t.Fatal("no processor time of the own process")
	}
	for end := time.Now().Add(time.Minute); ; {
		after, ok := cpuOf(pid)
		if ok && after > before {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the processor time stays at %v", before)
		}
	}
	if tree, ok := cpuOfTree(pid); !ok || tree < before {
		t.Errorf("the tree took %v, %v; the process alone %v", tree, ok, before)
	}
	if now, peak, ok := memoryOf(pid); !ok || now < 1<<20 || peak < now {
		t.Errorf("memory %d, peak %d, %v", now, peak, ok)
	}
	if got := postmasterOf(pid); got != 0 {
		t.Errorf("this process is no backend of Postgres, but %d is its postmaster", got)
	}
}

func TestMissingProcess(t *testing.T) {
	t.Parallel()
	if _, ok := cpuOf(0); ok {
		t.Error("there is processor time of no process")
	}
	if _, ok := cpuOf(); ok {
		t.Error("there is processor time of nothing")
	}
	if _, _, ok := memoryOf(0); ok {
		t.Error("there is memory of no process")
	}
}

func TestAddressInLog(t *testing.T) {
	t.Parallel()
	log := `{"level":"INFO","msg":"starting"}` + "\nno json\n" + `{"level":"INFO","msg":"serving","address":"127.0.0.1:7"}` + "\n"
	address, err := addressIn(bufio.NewReader(strings.NewReader(log)))
	if err != nil || address != "127.0.0.1:7" {
		t.Errorf("address %q, %v", address, err)
	}
	_, err = addressIn(bufio.NewReader(strings.NewReader("threadsvc: the port is taken\n")))
	if err == nil || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("of a server that ended: %v", err)
	}
}

func TestComplaintsAreTheLast(t *testing.T) {
	t.Parallel()
	log := strings.Repeat(`{"level":"WARN","msg":"early"}`+"\n", 20) + `{"level":"INFO","msg":"quiet"}` + "\n" + `{"level":"ERROR","msg":"late"}` + "\n"
	var c complaints
	c.read(bufio.NewReader(strings.NewReader(log)))
	if said := c.String(); strings.Count(said, "early") != 9 || !strings.Contains(said, "late") || strings.Contains(said, "quiet") {
		t.Errorf("complaints:\n%s", said)
	}
}
