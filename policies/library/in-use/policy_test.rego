package gleaner

claim := {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"}}

config := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data", "namespace": "shop"}}

secret := {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "data", "namespace": "shop"}}

class := {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "data"}}

list(items) := {"list": {"items": items}}

pod(spec, phase) := {"metadata": {"name": "web"}, "spec": spec, "status": {"phase": phase}}

mounting := {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}

decide(object, results) := verdict_of if {
	verdict_of := protect with input as {"object": object, "results": results}
}

with_items(object, id, items) := decide(object, json.patch(
	{each: list([]) | some each in readers_of(object)},
	[{"op": "replace", "path": [id], "value": list(items)}],
))

readers_of(object) := object_keys if {
	all := readers with input as {"object": object}
	object_keys := {id | some id, _ in all}
}

denies(verdict, reason) if {
	verdict.decision == "Deny"
	contains(verdict.reason, reason)
}

test_what_may_use_a_claim_is_read if {
	decide(claim, {}) == {"decision": "Act", "intents": [{
		"id": "pods",
		"list": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "limit": 100},
	}]}
}

test_a_list_continues_where_it_ended if {
	verdict_of := decide(claim, {"pods": {"list": {"items": [], "continue": "more"}}})
	verdict_of.intents[0].list.continue == "more"
}

test_the_lists_of_a_cluster_scoped_object_are_of_all_namespaces if {
	every intent in decide(class, {}).intents {
		not intent.list.namespace
	}
}

test_a_claim_that_a_pod_mounts_stays if denies(with_items(claim, "pods", [pod(mounting, "Running")]), "Pod web uses it")

test_a_claim_of_a_pod_that_has_ended_goes if {
	with_items(claim, "pods", [pod(mounting, "Succeeded"), pod({"containers": []}, "Running")]).decision == "Abstain"
}

test_a_config_map_in_a_template_stays if {
	template := {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "data"}}]}]}}}}
	denies(with_items(config, "deployments", [template]), "Deployment web uses it")
	denies(with_items(config, "pods", [pod({"volumes": [{"configMap": {"name": "data"}}]}, "Running")]), "Pod web uses it")
}

test_a_config_map_that_others_do_not_use_goes if {
	with_items(config, "pods", [pod({"volumes": [{"configMap": {"name": "other"}}]}, "Running")]).decision == "Abstain"
}

test_a_secret_stays_wherever_it_is_used if {
	every id, item in {
		"ingresses": {"metadata": {"name": "web"}, "spec": {"tls": [{"secretName": "data"}]}},
		"serviceaccounts": {"metadata": {"name": "web"}, "imagePullSecrets": [{"name": "data"}]},
		"pods": pod({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "data", "key": "a"}}}]}]}, "Running"),
		"daemonsets": {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"volumes": [{"csi": {"nodePublishSecretRef": {"name": "data"}}}]}}}},
		"jobs": {"metadata": {"name": "web"}, "spec": {"template": {"spec": {"volumes": [{"secret": {"secretName": "data"}}]}}}},
	} {
		denies(with_items(secret, id, [item]), "web uses it")
	}
}

test_a_storage_class_of_a_volume_stays if {
	denies(with_items(class, "volumes", [{"metadata": {"name": "pv"}, "spec": {"storageClassName": "data"}}]), "PersistentVolume pv uses it")
}

test_what_cannot_be_read_keeps_the_object if {
	denies(decide(claim, {"pods": {"error": {"reason": "Forbidden", "message": "no"}}}), "Pod: Forbidden")
}

test_another_kind_is_left_to_others if {
	decide({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "data", "namespace": "shop"}}, {}).decision == "Abstain"
}

test_a_kind_that_the_settings_omit_is_left_to_others if {
	verdict_of := protect with input as {"object": claim, "results": {}, "policy": {"settings": {"kinds": ["Secret"]}}}
	verdict_of.decision == "Abstain"
}

test_settings_are_checked if {
	validate.decision == "Valid" with input as {"policy": {"settings": {"kinds": ["Secret"]}}}
	validate.decision == "Invalid" with input as {"policy": {"settings": {"kind": ["Secret"]}}}
}
