//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: this system cannot tie a child's life to its parent's.
func dieWithParent(*syscall.SysProcAttr) {}
