package memstore

import "container/heap"

// dueRows are the rows that the clock will change, the oldest end first. It is a heap.Interface.
type dueRows []*row

func (d dueRows) Len() int           { return len(d) }
func (d dueRows) Less(i, j int) bool { return d[i].due < d[j].due }
func (d dueRows) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].at, d[j].at = i, j }

// Push is for package heap; use add.
func (d *dueRows) Push(x any) {
	r := x.(*row)
	r.at = len(*d)
	*d = append(*d, r)
}

// Pop is for package heap; use remove.
func (d *dueRows) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d, r.at = (*d)[:last], -1
	return r
}

func (d *dueRows) add(r *row) {
	if r.due != 0 {
		heap.Push(d, r)
	}
}

func (d *dueRows) remove(r *row) {
	if r.at >= 0 {
		heap.Remove(d, r.at)
	}
}
