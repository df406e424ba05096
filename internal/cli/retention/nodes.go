package retention

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// nodesDocument is the output document of gleaner preview retention --nodes.
type nodesDocument struct {
	printer.Document `json:",inline"`
	Nodes            []node        `json:"nodes"`
	Removals         []nodeRemoval `json:"removals"`
}

type node struct {
	Node        string `json:"node"`
	UsedPercent *int32 `json:"usedPercent,omitempty"`
	Images      int64  `json:"images"`
	InUse       int64  `json:"inUse"`
	Exited      int64  `json:"exitedContainers"`
	Due         int64  `json:"due"` // images and containers
	Removed     int64  `json:"removed"`
	Reason      string `json:"reason,omitempty"`

	// Evaluated is when the node was last looked at.
	Evaluated *metav1.Time `json:"evaluated,omitempty"`
}

type nodeRemoval struct {
	Node                 string `json:"node"`
	Mode                 string `json:"mode"`
	v1alpha1.NodeRemoval `json:",inline"`
}

// runNodes shows what Gleaner on the nodes would remove: only there are images and containers known.
func (o *options) runNodes(ctx context.Context, out io.Writer) error {
	if len(o.Files) > 0 {
		return exit.Usagef("--nodes with --filename: only Gleaner on a node knows its images; apply the policy with mode: Monitor, and run this without --filename")
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	client, err := policyset.NewClient(config)
	if err != nil {
		return err
	}
	var list v1alpha1.NodeRetentionList
	if err := client.List(ctx, &list); meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster has no NodeRetentions: apply config/node to run Gleaner on its nodes")
	} else if err != nil {
		return fmt.Errorf("list NodeRetentions: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.NodeRetention) int { return cmp.Compare(a.Name, b.Name) })
	return o.writeNodes(out, o.nodesDocument(list.Items), time.Now())
}

func (o *options) nodesDocument(nodes []v1alpha1.NodeRetention) nodesDocument {
	d := nodesDocument{Document: printer.DocumentOf("NodeRetentionPreview"), Nodes: []node{}, Removals: []nodeRemoval{}}
	for _, n := range nodes {
		s, one := n.Status, node{Node: n.Name, Reason: n.Status.Reason, Evaluated: n.Status.LastEvaluation}
		if f := s.ImageFilesystem; f != nil {
			one.UsedPercent = &f.UsedPercent
		}
		if i := s.Images; i != nil {
			one.Images, one.InUse, one.Due, one.Removed = i.Total, i.InUse, i.Due, i.Removed
		}
		if c := s.Containers; c != nil {
			one.Exited, one.Due, one.Removed = c.Exited, one.Due+c.Due, one.Removed+c.Removed
		}
		d.Nodes = append(d.Nodes, one)
		modes := map[string]string{}
		for _, p := range s.Policies {
			modes[p.Name] = string(p.Mode)
		}
		for _, removal := range s.NextRemovals {
			if len(o.policies) == 0 || slices.Contains(o.policies, removal.Policy) {
				d.Removals = append(d.Removals, nodeRemoval{Node: n.Name, Mode: modes[removal.Policy], NodeRemoval: removal})
			}
		}
	}
	return d
}

func (o *options) writeNodes(out io.Writer, d nodesDocument, now time.Time) error {
	switch o.Output {
	case "json", "yaml":
		return printer.Write(out, o.Output, d)
	case "name":
		for _, r := range d.Removals {
			if r.Time == nil {
				printer.Fprintln(out, strings.ToLower(string(r.Type))+"/"+r.ID)
			}
		}
		return nil
	}
	p := printer.PaletteFor(out)
	if len(d.Nodes) == 0 {
		printer.Fprintln(out, "No node has reported: see whether the Pods in the namespace gleaner-node run.")
		return nil
	}
	nodes := printer.Table{Header: []string{"NODE", "USED", "IMAGES", "IN USE", "EXITED", "REMOVED NOW", "REMOVED", "EVALUATED", "REASON"}}
	for _, n := range d.Nodes {
		used, evaluated := "", ""
		if n.UsedPercent != nil {
			used = fmt.Sprintf("%d%%", *n.UsedPercent)
		}
		if n.Evaluated != nil {
			evaluated = duration.HumanDuration(max(now.Sub(n.Evaluated.Time), 0)) + " ago"
		}
		nodes.Add(cells(n.Node, used, fmt.Sprint(n.Images), fmt.Sprint(n.InUse), fmt.Sprint(n.Exited), fmt.Sprint(n.Due), fmt.Sprint(n.Removed), evaluated, n.Reason)...)
	}
	if err := nodes.Write(out, p); err != nil {
		return err
	}
	for _, later := range []bool{false, true} {
		if err := d.writeRemovals(out, p, later, now); err != nil {
			return err
		}
	}
	return nil
}

// writeRemovals writes what is removed now or later, unless that is nothing.
func (d nodesDocument) writeRemovals(out io.Writer, p printer.Palette, later bool, now time.Time) error {
	t, title := printer.Table{Header: []string{"NODE", "TYPE", "NAME", "POLICY", "REASON"}}, "Removed now:"
	if later {
		t.Header[4], title = "IN", "Removed next, if nothing changes:"
	}
	for _, r := range d.Removals {
		if later != (r.Time != nil) {
			continue
		}
		policy, why := r.Policy, r.Reason
		if r.Mode == string(v1alpha1.ModeMonitor) {
			policy += " (Monitor)"
		}
		if later {
			why = duration.HumanDuration(max(r.Time.Sub(now), 0))
		}
		t.Add(cells(r.Node, string(r.Type), r.Name, policy, why)...)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	printer.NewSection(out, p).Title("%s", title)
	return printer.PrintIndented(out, t, p)
}
