package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

var errMoment = errors.New("want a version, run:ID, a time such as 2026-12-02T15:04:05Z, a time ago such as 90s, or now")

// localTimes are the forms of a time without a zone, which is local.
var localTimes = []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly}

// parseMoment reads a moment as people write it; nil is now.
func parseMoment(text string, now time.Time) (*threadsvcv1.Moment, error) {
	if text == "now" {
		return nil, nil
	}
	if version, err := strconv.ParseUint(text, 10, 64); err == nil {
		return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{Version: version}}, nil
	}
	if run, ok := strings.CutPrefix(text, "run:"); ok && run != "" {
		return &threadsvcv1.Moment{At: &threadsvcv1.Moment_RunId{RunId: run}}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return momentAt(now.Add(-ago)), nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return momentAt(at), nil
	}
	for _, form := range localTimes {
		if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return momentAt(at), nil
		}
	}
	return nil, fmt.Errorf("%q is no moment: %w", text, errMoment)
}

func momentAt(t time.Time) *threadsvcv1.Moment {
	return &threadsvcv1.Moment{At: &threadsvcv1.Moment_Time{Time: timestamppb.New(t)}}
}

// moment reads an argument or a flag; empty is nil.
func (c *threadCall) moment(text string) (*threadsvcv1.Moment, error) {
	if text == "" {
		return nil, nil
	}
	m, err := parseMoment(text, c.out.now)
	if err != nil {
		return nil, c.usage(err)
	}
	return m, nil
}

// moments reads two of them.
func (c *threadCall) moments(from, to string) (a, b *threadsvcv1.Moment, err error) {
	if a, err = c.moment(from); err != nil {
		return nil, nil, err
	}
	b, err = c.moment(to)
	return a, b, err
}
