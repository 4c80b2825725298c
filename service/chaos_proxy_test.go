package service_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// faultyProxy passes TCP connections on to a target, until it is told to be bad at it.
type faultyProxy struct {
	listener net.Listener
	network  string // of the target
	target   string
	delay    atomic.Int64 // of every piece, in nanoseconds
	hole     atomic.Bool  // what comes is dropped

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
	tasks  sync.WaitGroup
}

// startProxy starts a proxy that ends with the test.
func startProxy(t testing.TB, network, target string) *faultyProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyProxy{listener: listener, network: network, target: target, conns: map[net.Conn]bool{}}
	p.tasks.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *faultyProxy) address() string { return p.listener.Addr().String() }

func (p *faultyProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.pass(conn) })
	}
}

// pass carries a connection in both directions until one of them ends.
func (p *faultyProxy) pass(near net.Conn) {
	far, err := net.DialTimeout(p.network, p.target, 5*time.Second)
	if err != nil {
		_ = near.Close()
		return
	}
	if !p.keep(near, far) {
		return
	}
	end := func() {
		_, _ = near.Close(), far.Close()
	}
	var other sync.WaitGroup
	other.Go(func() { p.carry(far, near); end() })
	p.carry(near, far)
	end()
	other.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, near)
	delete(p.conns, far)
}

// keep notes both ends of a connection, or closes them if the proxy is closed.
func (p *faultyProxy) keep(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range ends {
		if p.closed {
			_ = conn.Close()
		} else {
			p.conns[conn] = true
		}
	}
	return !p.closed
}

func (p *faultyProxy) carry(to, from net.Conn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(p.delay.Load()))
		if p.hole.Load() {
			continue // what follows cannot be passed on any more: fill cuts the connection
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// cut resets all connections.
func (p *faultyProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// dig swallows everything from now on, in both directions, until fill.
func (p *faultyProxy) dig() { p.hole.Store(true) }

// fill ends dig. Connections that lost something are reset.
func (p *faultyProxy) fill() {
	p.cut()
	p.hole.Store(false)
}

func (p *faultyProxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cut()
	p.tasks.Wait()
}
