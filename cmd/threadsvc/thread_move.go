package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// importPiece is the size of a message of an import, in bytes.
const importPiece = 256 << 10

var errToTerminal = errors.New("an exported thread is no text for a terminal: give a file, or redirect the output")

func newThreadExport(flags *threadFlags) *cobra.Command {
	c := &cobra.Command{Use: "export THREAD [FILE]", Short: "Write a thread to a file, or to standard output", Args: cobra.RangeArgs(1, 2)}
	flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		path := append(args, "-")[1]
		if path == "-" && c.out.terminal {
			return c.usage(errToTerminal)
		}
		stream, err := c.history.ExportThread(ctx, &threadsvcv1.ExportThreadRequest{Thread: c.name(args[0])})
		if err != nil {
			return err
		}
		write := func(w io.Writer) (size int64, err error) {
			for {
				msg, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return size, nil
				}
				if err != nil {
					return size, err
				}
				n, err := w.Write(msg.GetChunk())
				size += int64(n)
				if err != nil {
					return size, err
				}
			}
		}
		if path == "-" {
			_, err := write(c.command.OutOrStdout())
			return err
		}
		size, err := writeWhole(path, write)
		if err != nil {
			return err
		}
		if c.json {
			return c.out.json(map[string]any{"thread": args[0], "file": path, "bytes": size})
		}
		c.out.line(plain("exported %s to %s, %s; 'threadsvc verify --file' judges it", args[0], path, bytesText(uint64(size))))
		return c.out.err
	})
	flags.patient(c)
	return c
}

// writeWhole makes a file, which has its name only once it is whole. One that exists is replaced then.
func writeWhole(path string, write func(io.Writer) (int64, error)) (size int64, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if size, err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(file.Name(), path)
}

func newThreadImport(flags *threadFlags) *cobra.Command {
	c := &cobra.Command{Use: "import THREAD [FILE]", Short: "Make a thread of an exported file, or of standard input", Args: cobra.RangeArgs(1, 2)}
	replace := c.Flags().Bool("replace-deleted", false, "make it also if a thread of this id was deleted")
	flags.runs(c, func(ctx context.Context, c *threadCall, args []string) error {
		in := c.command.InOrStdin()
		if path := append(args, "-")[1]; path != "-" {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			in = file
		} else if onTerminal(in) {
			return c.usage(errors.New("standard input is a terminal: give a file, or redirect the input"))
		}
		first := &threadsvcv1.ImportThreadRequest{Thread: c.name(args[0]), ReplaceDeleted: *replace}
		thread, err := c.importFrom(ctx, first, bufio.NewReaderSize(in, importPiece))
		if err != nil {
			return err
		}
		view := viewThread(thread)
		return c.done(view, "imported %s: version %d, %s", view.Thread, view.Version, count(int(view.Runs), "run"))
	})
	flags.patient(c)
	return c
}

// importFrom sends a file, the first piece of it with the first request. The server's own error comes before that of sending
// to it.
func (c *threadCall) importFrom(ctx context.Context, req *threadsvcv1.ImportThreadRequest, in io.Reader) (*threadsvcv1.Thread, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.history.ImportThread(ctx)
	if err != nil {
		return nil, err
	}
	piece := make([]byte, importPiece)
	for {
		n, err := io.ReadFull(in, piece)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return nil, fmt.Errorf("read the file: %w", err)
		}
		req.Chunk = piece[:n]
		if stream.Send(req) != nil || end { // why sending failed is what the answer says
			break
		}
		req = &threadsvcv1.ImportThreadRequest{}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetThread(), err
}

// done says what a command did.
func (c *threadCall) done(view any, format string, args ...any) error {
	if c.json {
		return c.out.json(view)
	}
	c.out.line(plain(format, args...))
	return c.out.err
}
