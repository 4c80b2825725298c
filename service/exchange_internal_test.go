package service

import "testing"

func TestWindowOfAStream(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sizes []int // of the batches without an answer
		full  bool
	}{
		{"nothing", nil, false},
		{"as many as it holds", []int{1, 1, 1}, false},
		{"one more", []int{1, 1, 1, 1}, true},
		{"as large as it holds", []int{60, 40}, false},
		{"larger", []int{60, 41}, true},
		{"one large batch", []int{1000}, true},
	} {
		x := newExchange(&Service{cfg: Config{Window: 3, WindowBytes: 100}}, nil)
		for _, size := range tc.sizes {
			x.queueAnswer(&answer{size: size})
		}
		if x.full() != tc.full {
			t.Errorf("%s: full is %t", tc.name, x.full())
		}
		for range tc.sizes {
			x.sent()
		}
		if x.full() || x.queued != 0 {
			t.Errorf("%s: full once all is answered", tc.name)
		}
	}
}
