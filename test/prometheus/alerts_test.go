// Package prometheus tests config/monitoring with Prometheus' own code: each
// alert is evaluated over series for which it must fire and others for which it must not,
// and all expressions may only use metrics that the operator has.
package prometheus

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v2"
)

// interval is the interval of rule evaluations and samples.
const interval = time.Minute

// story is a set of series and the alerts that fire for them.
type story struct {
	alert  string
	series string        // one sample a minute
	at     time.Duration // time of the evaluation
	fires  []string      // firing alerts, as LABEL=VALUE …: SUMMARY
}

var stories = map[string]story{
	"nothing is scraped": {
		"GleanerDown", `up{job="other"} 1x30`, 6 * time.Minute,
		[]string{"severity=critical: No replica of Gleaner is reachable"},
	},
	"no replica is up": {
		"GleanerDown", `up{job="gleaner", pod="a"} 1x3 0x30`, 10 * time.Minute,
		[]string{"severity=critical: No replica of Gleaner is reachable"},
	},
	"one replica is up": {
		"GleanerDown", "up{job=\"gleaner\", pod=\"a\"} 0x30\n up{job=\"gleaner\", pod=\"b\"} 1x30", 30 * time.Minute, nil,
	},

	"no replica writes": {
		"GleanerWritesDisabled", "gleaner_writes_enabled{namespace=\"n\", pod=\"a\"} 1 0x30\n gleaner_writes_enabled{namespace=\"n\", pod=\"b\"} 0x30",
		10 * time.Minute, []string{"namespace=n severity=critical: No replica of Gleaner writes"},
	},
	"one replica writes, the other is on standby": {
		"GleanerWritesDisabled", "gleaner_writes_enabled{namespace=\"n\", pod=\"a\"} 1x30\n gleaner_writes_enabled{namespace=\"n\", pod=\"b\"} 0x30",
		30 * time.Minute, nil,
	},
	"another takes over within two minutes": {
		"GleanerWritesDisabled", "gleaner_writes_enabled{namespace=\"n\", pod=\"a\"} 1x3 0x30\n gleaner_writes_enabled{namespace=\"n\", pod=\"b\"} 0x5 1x30",
		30 * time.Minute, nil,
	},

	"two replicas write": {
		"GleanerTwoWriters", "gleaner_writes_enabled{namespace=\"n\", pod=\"a\"} 1x30\n gleaner_writes_enabled{namespace=\"n\", pod=\"b\"} 1x30",
		10 * time.Minute, []string{"namespace=n severity=critical: 2 replicas of Gleaner write at once"},
	},
	"one writes after another": {
		"GleanerTwoWriters", "gleaner_writes_enabled{namespace=\"n\", pod=\"a\"} 1x3 0x30\n gleaner_writes_enabled{namespace=\"n\", pod=\"b\"} 0x2 1x30",
		30 * time.Minute, nil,
	},

	"another collector is running": {
		"GleanerOtherCollectorAlive", `gleaner_collector_unexpected{namespace="n", pod="a"} 0 1x10`, 5 * time.Minute,
		[]string{"namespace=n severity=critical: Another garbage collector is running, and Gleaner has stopped"},
	},
	"no other collector is running": {"GleanerOtherCollectorAlive", `gleaner_collector_unexpected{namespace="n"} 0x10`, 10 * time.Minute, nil},

	"the other collector is missing": {
		"GleanerOtherCollectorMissing", `gleaner_collector_missing{namespace="n"} 1x30`, 20 * time.Minute,
		[]string{"namespace=n severity=critical: There is no other garbage collector"},
	},
	"the other collector is away for ten minutes": {
		"GleanerOtherCollectorMissing", `gleaner_collector_missing{namespace="n"} 0x3 1x10 0x30`, 40 * time.Minute, nil,
	},

	"the queue does not advance": {
		"GleanerQueueOld", `gleaner_queue_oldest_seconds{namespace="n"} 0+60x60`, 20 * time.Minute,
		[]string{"namespace=n severity=warning: An object has been queued for 20m 0s"},
	},
	"the queue is delayed occasionally": {
		"GleanerQueueOld", `gleaner_queue_oldest_seconds{namespace="n"} 400x5 0x3 400x5 0x30`, 20 * time.Minute, nil,
	},

	"a module is quarantined repeatedly": {
		"GleanerModuleQuarantined", `gleaner_modules_quarantined{namespace="n"} 2x40`, 30 * time.Minute,
		[]string{"namespace=n severity=warning: 2 modules are quarantined"},
	},
	"a module is quarantined once": {"GleanerModuleQuarantined", `gleaner_modules_quarantined{namespace="n"} 1x10 0x40`, 40 * time.Minute, nil},

	"keys cannot be read": {
		"GleanerStateKeysUnavailable", `gleaner_state_keys_available{namespace="n"} 0x30`, 20 * time.Minute,
		[]string{"namespace=n severity=critical: The keys of state annotations cannot be read"},
	},
	"keys are read shortly after the start": {"GleanerStateKeysUnavailable", `gleaner_state_keys_available{namespace="n"} 0x2 1x40`, 40 * time.Minute, nil},

	"an object stays parked": {
		"GleanerObjectsParked", `gleaner_parked_objects{namespace="n"} 3x100`, 90 * time.Minute,
		[]string{"namespace=n severity=warning: 3 objects have too many owner references"},
	},
	"an object is parked temporarily": {"GleanerObjectsParked", `gleaner_parked_objects{namespace="n"} 3x30 0x60`, 80 * time.Minute, nil},

	"one of ten takes minutes": {
		"GleanerCollectionSlow",
		"gleaner_collection_delay_seconds_bucket{namespace=\"n\", le=\"1\"} 0+8x60\n gleaner_collection_delay_seconds_bucket{namespace=\"n\", le=\"120\"} 0+10x60\n" +
			" gleaner_collection_delay_seconds_bucket{namespace=\"n\", le=\"+Inf\"} 0+10x60",
		30 * time.Minute, []string{"namespace=n severity=warning: Collecting takes 1m 0s"},
	},
	"nearly all are collected immediately": {
		"GleanerCollectionSlow",
		"gleaner_collection_delay_seconds_bucket{namespace=\"n\", le=\"1\"} 0+99x60\n gleaner_collection_delay_seconds_bucket{namespace=\"n\", le=\"+Inf\"} 0+100x60",
		30 * time.Minute, nil,
	},
	"nothing is collected": {
		"GleanerCollectionSlow", `gleaner_collection_delay_seconds_bucket{namespace="n", le="+Inf"} 0x60`, 30 * time.Minute, nil,
	},

	"a type can not be listed": {
		"GleanerTypesNotSynced",
		"gleaner_resource_synced{namespace=\"n\", group=\"example.com\", version=\"v1\", resource=\"things\"} 0x30\n" +
			" gleaner_resource_synced{namespace=\"n\", group=\"\", version=\"v1\", resource=\"pods\"} 1x30",
		20 * time.Minute,
		[]string{"group=example.com namespace=n resource=things severity=warning version=v1: Not listed: things.v1.example.com"},
	},
	"a type is listed after ten minutes": {
		"GleanerTypesNotSynced", `gleaner_resource_synced{namespace="n", group="", version="v1", resource="pods"} 0x10 1x30`, 30 * time.Minute, nil,
	},

	"discovery fails every half minute": {
		"GleanerDiscoveryFails", `gleaner_discovery_errors_total{namespace="n", pod="a"} 0+2x60`, 40 * time.Minute,
		[]string{"namespace=n pod=a severity=warning: API discovery fails"},
	},
	"discovery failed once": {"GleanerDiscoveryFails", `gleaner_discovery_errors_total{namespace="n"} 0x3 1x60`, 40 * time.Minute, nil},

	"a module fails repeatedly": {
		"GleanerPolicyAtFault", `gleaner_policy_answers_total{namespace="n", policy="GCPolicy shop/keep", mode="Enforce", decision="Fault"} 1+1x30`, 20 * time.Minute,
		[]string{"namespace=n policy=GCPolicy shop/keep severity=warning: GCPolicy shop/keep is at fault"},
	},
	"a policy returns verdicts": {
		"GleanerPolicyAtFault", `gleaner_policy_answers_total{namespace="n", policy="GCPolicy shop/keep", mode="Enforce", decision="Delete"} 1+1x30`, 30 * time.Minute, nil,
	},
	"a module failed long ago": {
		"GleanerPolicyAtFault", `gleaner_policy_answers_total{namespace="n", policy="GCPolicy shop/keep", mode="Enforce", decision="Fault"} 0 7x60`, 40 * time.Minute, nil,
	},

	"the archive accepts nothing": {
		"GleanerArchiveFailing", `gleaner_archive_ready{namespace="n"} 0x30`, 20 * time.Minute,
		[]string{"namespace=n severity=critical: Deleted objects cannot be archived"},
	},
	"the archive was unavailable for a moment": {"GleanerArchiveFailing", `gleaner_archive_ready{namespace="n"} 0x5 1x40`, 40 * time.Minute, nil},
	"there is no archive":                      {"GleanerArchiveFailing", `gleaner_archive_missed_total{namespace="n"} 0x40`, 40 * time.Minute, nil},
	"objects were not archived": {
		"GleanerArchiveMissed", `gleaner_archive_missed_total{namespace="n"} 0x10 6x50`, 30 * time.Minute,
		[]string{"namespace=n severity=warning: 6 objects were deleted without being archived within an hour"},
	},
	"all objects were archived": {"GleanerArchiveMissed", `gleaner_archive_missed_total{namespace="n"} 0x60`, 50 * time.Minute, nil},

	"something is paused for long": {
		"GleanerPaused", "gleaner_pauses{namespace=\"n\", kind=\"ClusterPause\", pod=\"a\"} 1x90\n gleaner_pauses{namespace=\"n\", kind=\"Pause\", pod=\"a\"} 0x90",
		80 * time.Minute, []string{"kind=ClusterPause namespace=n severity=warning: Deletions have been paused for an hour by 1 ClusterPause"},
	},
	"something was paused for a moment": {"GleanerPaused", `gleaner_pauses{namespace="n", kind="Pause"} 3x50 0x60`, 70 * time.Minute, nil},

	"a budget is exhausted": {
		"GleanerBudgetExhausted", `gleaner_deletion_budget_exhausted{namespace="n", budget="ClusterDeletionBudget runaway", pod="a"} 1x10`,
		5 * time.Minute, []string{"budget=ClusterDeletionBudget runaway namespace=n severity=warning: Deletions wait for ClusterDeletionBudget runaway"},
	},
	"removals fail": {
		"GleanerRetentionFailing", `gleaner_retention_failures_total{namespace="n", policy="RetentionPolicy ci/jobs", pod="a"} 0+1x40`,
		35 * time.Minute, []string{"namespace=n policy=RetentionPolicy ci/jobs severity=warning: Objects cannot be removed for RetentionPolicy ci/jobs"},
	},
	"one removal has failed": {"GleanerRetentionFailing", `gleaner_retention_failures_total{namespace="n", policy="p"} 0 1x40`, 35 * time.Minute, nil},
	"a node stays full": {
		"GleanerNodeFull", `gleaner_node_usage_above_threshold{namespace="n", pod="a", node="node1"} 1x40`,
		35 * time.Minute, []string{"node=node1 severity=warning: The image file system of node1 stays above the threshold of a NodeRetentionPolicy"},
	},
	"a node was full for a moment": {"GleanerNodeFull", `gleaner_node_usage_above_threshold{namespace="n", node="node1"} 1x5 0x40`, 35 * time.Minute, nil},
	"a container runtime fails": {
		"GleanerNodeRuntimeFailing", `gleaner_node_runtime_ready{namespace="n", pod="a", node="node1"} 0x40`,
		35 * time.Minute, []string{"node=node1 severity=warning: Gleaner cannot use the container runtime of node1"},
	},
	"a container runtime restarted": {"GleanerNodeRuntimeFailing", `gleaner_node_runtime_ready{namespace="n", node="node1"} 0x3 1x40`, 35 * time.Minute, nil},
	"much is deleted": {
		"GleanerDeletionRate", `gleaner_decisions_total{namespace="n", action="Delete", result="Done", kind="Pod"} 0+6000x10`,
		8 * time.Minute, []string{"namespace=n severity=warning: Gleaner deletes 100 objects a second"},
	},
	"much is kept":                        {"GleanerDeletionRate", `gleaner_decisions_total{namespace="n", action="DropReferences", result="Done"} 0+6000x10`, 8 * time.Minute, nil},
	"a budget was exhausted for a moment": {"GleanerBudgetExhausted", `gleaner_deletion_budget_exhausted{namespace="n", budget="b"} 1 0x10`, 5 * time.Minute, nil},

	"objects are stuck": {
		"GleanerFinalizerStalled", "gleaner_finalizer_objects{namespace=\"n\", finalizer=\"ClusterFinalizer bucket\", state=\"stalled\"} 3x30",
		20 * time.Minute, []string{"finalizer=ClusterFinalizer bucket namespace=n severity=warning: 3 objects are stalled by ClusterFinalizer bucket"},
	},
	"objects wait, and none is stuck": {
		"GleanerFinalizerStalled",
		"gleaner_finalizer_objects{namespace=\"n\", finalizer=\"f\", state=\"stalled\"} 0x30\n gleaner_finalizer_objects{namespace=\"n\", finalizer=\"f\", state=\"pending\"} 9x30",
		30 * time.Minute, nil,
	},

	"an object without a deadline has waited for more than an hour": {
		"GleanerFinalizerWaiting", "gleaner_finalizer_oldest_deletion_timestamp_seconds{namespace=\"n\", finalizer=\"f\"} 0x120",
		90 * time.Minute, []string{"finalizer=f namespace=n severity=warning: An object has waited for f for 1h 30m 0s"},
	},
	"objects have waited for less than an hour": {
		"GleanerFinalizerWaiting", "gleaner_finalizer_oldest_deletion_timestamp_seconds{namespace=\"n\", finalizer=\"f\"} 1800x120", 75 * time.Minute, nil,
	},

	"a certificate expires in six days": { // the clock begins at 0
		"GleanerCertificateExpires", `gleaner_webhook_certificate_expiration_timestamp_seconds{namespace="n"} 525600x120`, 2 * time.Hour,
		[]string{"namespace=n severity=critical: The webhook's certificate expires in 6d 0h 0m 0s"},
	},
	"a certificate expires in eight days": {
		"GleanerCertificateExpires", `gleaner_webhook_certificate_expiration_timestamp_seconds{namespace="n"} 698400x120`, 2 * time.Hour, nil,
	},

	"records are lost": {
		"GleanerRecordsLost", `gleaner_records_lost_total{namespace="n", pod="a"} 0x9 15x20`, 12 * time.Minute,
		[]string{"namespace=n pod=a severity=warning: 15 decision records were lost within 15 minutes"},
	},
	"no record is lost": {"GleanerRecordsLost", `gleaner_records_lost_total{namespace="n", pod="a"} 7x60`, 30 * time.Minute, nil},
	"records wait": {
		"GleanerRecordsWaiting", `gleaner_records_waiting{namespace="n", pod="a"} 2000x30`, 20 * time.Minute,
		[]string{"namespace=n pod=a severity=warning: 2000 decision records wait to be stored"},
	},
	"records wait for a moment": {"GleanerRecordsWaiting", `gleaner_records_waiting{namespace="n", pod="a"} 2000x3 0x30`, 20 * time.Minute, nil},

	"the operator restarts repeatedly": {
		"GleanerRestarts", `process_start_time_seconds{job="gleaner", namespace="n", pod="a"} 0x9 1x9 2x9 3x9`, 35 * time.Minute,
		[]string{"job=gleaner namespace=n pod=a severity=warning: Gleaner has started 3 times within an hour"},
	},
	"other processes restart repeatedly": {"GleanerRestarts", `process_start_time_seconds{job="other", namespace="n", pod="a"} 0+1x60`, time.Hour, nil},
	"the operator restarted twice":       {"GleanerRestarts", `process_start_time_seconds{job="gleaner", namespace="n", pod="a"} 0x9 1x9 2x60`, time.Hour, nil},

	"one call of ten fails": {
		"GleanerAPIErrors", "gleaner_api_calls_total{namespace=\"n\", verb=\"delete\", code=\"200\"} 0+90x60\n gleaner_api_calls_total{namespace=\"n\", verb=\"delete\", code=\"503\"} 0+10x60",
		30 * time.Minute, []string{"namespace=n severity=warning: 10% of the requests to the API server fail"},
	},
	"conflicts and not-found responses are not errors": {
		"GleanerAPIErrors", "gleaner_api_calls_total{namespace=\"n\", verb=\"delete\", code=\"200\"} 0+50x60\n" +
			" gleaner_api_calls_total{namespace=\"n\", verb=\"delete\", code=\"409\"} 0+20x60\n gleaner_api_calls_total{namespace=\"n\", verb=\"get\", code=\"404\"} 0+30x60",
		30 * time.Minute, nil,
	},
}

func TestAlerts(t *testing.T) {
	alerts := parseRules(t)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for claim, s := range stories {
		if len(s.fires) != 0 {
			fires[s.alert] = true
		} else {
			quiet[s.alert] = true
		}
		t.Run(s.alert+": "+claim, func(t *testing.T) {
			rule, ok := alerts[s.alert]
			if !ok {
				t.Fatal("alert not found")
			}
			if diff := cmp.Diff(s.fires, evaluate(t, rule, s)); diff != "" {
				t.Errorf("firing alerts (-want +got):\n%s", diff)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		if !fires[name] || !quiet[name] {
			t.Errorf("%s: add stories in which it fires and in which it does not", name)
		}
	}
}

// evaluate evaluates a rule as Prometheus does, up to the time of the story.
func evaluate(t *testing.T, r rulefmt.Rule, s story) (fires []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, logger)
	storage := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n %s", model.Duration(interval), s.series))
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), storage)
	for at := time.Duration(0); at <= s.at; at += interval {
		if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, alert := range rule.ActiveAlerts() {
		if alert.State == rules.StateFiring {
			fires = append(fires, describe(t, alert))
		}
	}
	slices.Sort(fires)
	return fires
}

func describe(t *testing.T, alert *rules.Alert) string {
	t.Helper()
	var parts []string
	alert.Labels.Range(func(l labels.Label) {
		if l.Name != labels.AlertName {
			parts = append(parts, l.Name+"="+l.Value)
		}
	})
	alert.Annotations.Range(func(l labels.Label) {
		if strings.Contains(l.Value, "error expanding") || strings.Contains(l.Value, "{{") || strings.Contains(l.Value, "<no value>") {
			t.Errorf("%s is %s", l.Name, l.Value)
		}
	})
	return strings.Join(parts, " ") + ": " + alert.Annotations.Get("summary")
}

// parseRules parses the rules with Prometheus, and returns them by name.
func parseRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	var manifest struct {
		Spec yaml.MapSlice `yaml:"spec"`
	}
	if err := yaml.Unmarshal(read(t, "config/monitoring/rules.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(manifest.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.NewTextHandler(&said, nil)))
	if len(errs) != 0 || said.Len() != 0 {
		t.Fatalf("parse rules: %v\n%s", errs, &said)
	}
	found := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if _, twice := found[rule.Alert]; twice || rule.Alert == "" {
				t.Errorf("alert %q is a duplicate or not an alert", rule.Alert)
			}
			found[rule.Alert] = rule
		}
	}
	return found
}

func TestAlerts_HaveSeverityAndAnnotations(t *testing.T) {
	for name, rule := range parseRules(t) {
		severity := rule.Labels["severity"]
		if severity != "critical" && severity != "warning" || !strings.HasPrefix(name, "Gleaner") {
			t.Errorf("%s is %q", name, severity)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || len(rule.Annotations) != 2 {
			t.Errorf("annotations of %s are %v", name, rule.Annotations)
		}
	}
}
