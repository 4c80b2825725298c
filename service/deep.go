package service

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// maxIdleHelpers is how many goroutines wait for work; more than that many come and go.
const maxIdleHelpers = 64

// deep runs what needs a deep stack for goroutines that live long and mostly wait. A stack that has grown seldom shrinks, so
// that thousands of streams would keep what each has needed once. The goroutines that do the work instead are as many as work
// at the same time.
type deep struct {
	calls   chan *deepCall
	idle    chan struct{} // holds one token for each goroutine that waits, or is about to
	closing chan struct{}
	helpers sync.WaitGroup
}

// deepCall is a piece of work; panicked is set if it did, before done is told.
type deepCall struct {
	work     func()
	panicked error
	done     chan struct{}
}

func newDeep() *deep {
	return &deep{calls: make(chan *deepCall), idle: make(chan struct{}, maxIdleHelpers), closing: make(chan struct{})}
}

// run returns when work has. A panic of it goes on here, as an error with the stack on which it happened.
func (d *deep) run(work func()) {
	call := &deepCall{work: work, done: make(chan struct{}, 1)}
	select {
	case d.calls <- call:
	default:
		d.helpers.Go(func() { d.help(call) })
	}
	<-call.done
	if call.panicked != nil {
		panic(call.panicked)
	}
}

// help does a piece of work, and then what comes, unless enough others wait for that.
func (d *deep) help(call *deepCall) {
	for {
		call.do()
		select {
		case d.idle <- struct{}{}:
		default:
			return
		}
		select {
		case call = <-d.calls:
			<-d.idle
		case <-d.closing:
			return
		}
	}
}

func (c *deepCall) do() {
	defer func() {
		if r := recover(); r != nil {
			c.panicked = fmt.Errorf("service: panic: %v\n%s", r, debug.Stack())
		}
		c.done <- struct{}{}
	}()
	c.work()
}

// close waits for the goroutines. Nobody may run anything any more.
func (d *deep) close() {
	close(d.closing)
	d.helpers.Wait()
}
