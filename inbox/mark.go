package inbox

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// marks is what the subscriber's name ends in where the store keeps marks; no subscriber can be named so.
const marks = "/marks"

var errBusyMark = errors.New("inbox: another process writes the mark")

// Mark says that the deliveries of a partition before to may be handed to a handler from now on, and returns where the mark
// was before; 0: there was none. It is for adapters of brokers that do not say which delivery a message is, which call it
// before they hand a batch over: what stands before the mark that the first call found may have been started before, what
// stands behind it has certainly not.
//
// A mark never goes back: a lower one changes nothing, so that an owner that does not know yet that it lost the partition
// does no harm. On an error it is not known whether the mark moved.
func (in *Inbox) Mark(ctx context.Context, partition string, to int64) (was int64, err error) {
	for try := range 20 {
		if was, err = in.moveMark(ctx, partition, to); !errors.Is(err, errBusyMark) {
			break
		}
		rest(ctx, backoff.Full(try, 5*time.Millisecond, 500*time.Millisecond))
	}
	return was, err
}

func (in *Inbox) moveMark(ctx context.Context, partition string, to int64) (was int64, err error) {
	err = in.engine.InTx(ctx, func(ctx context.Context) error {
		row := EnterParams{Tenant: in.o.Tenant, Subscriber: in.o.Subscriber + marks, Lane: partition}
		e, err := in.store.Enter(ctx, row)
		switch {
		case err != nil:
			return err
		case e.Busy:
			return errBusyMark
		}
		if was, err = 0, nil; e.Version != "" {
			if was, err = strconv.ParseInt(e.Version, 10, 64); err != nil {
				return err
			}
		}
		if to <= was {
			return nil
		}
		return in.store.Leave(ctx, LeaveParams{Tenant: row.Tenant, Subscriber: row.Subscriber, Lane: partition, Version: strconv.FormatInt(to, 10)})
	})
	return was, err
}
