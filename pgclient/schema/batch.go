package schema

import (
	"context"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
)

// batch are statements that are sent to the server as one text: an installation has over two
// thousand, and each alone would wait for the network once.
type batch struct {
	objects []object
	texts   []string
	bytes   int
}

func (b *batch) add(o object, sql string) {
	b.objects, b.texts = append(b.objects, o), append(b.texts, sql)
	b.bytes += len(sql)
}

// full limits what the server parses at once.
func (b *batch) full() bool { return b.bytes > 100_000 }

// flush runs the statements of the batch and empties it. If the whole text fails, flush rolls it
// back and runs the statements one by one, so that the error names the object and its line.
func (in *installer) flush(ctx context.Context, b *batch) error {
	all := *b
	*b = batch{}
	if len(all.texts) == 0 {
		return nil
	}
	in.found = nil
	if len(all.texts) > 1 {
		in.doing = all.objects[0].at() + " and the objects after it"
		err := pgx.BeginFunc(ctx, in.tx, func(tx pgx.Tx) error { return in.exec(ctx, tx, strings.Join(all.texts, "\n")) })
		if err == nil || retryable(err) {
			return err
		}
	}
	for i, o := range all.objects {
		in.doing = o.at()
		if err := in.exec(ctx, in.tx, all.texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// catalogue returns what readCatalogue does, and reads each kind once until in.found is reset,
// which every change of an object does.
func (in *installer) catalogue(ctx context.Context, of ...kind) (map[key]string, error) {
	out := map[key]string{}
	for _, k := range of {
		if in.found[k] == nil {
			found, err := readCatalogue(ctx, in.tx, in.roleSet, k)
			if err != nil {
				return nil, err
			}
			if in.found == nil {
				in.found = map[kind]map[key]string{}
			}
			in.found[k] = found
		}
		maps.Copy(out, in.found[k])
	}
	return out, nil
}
