# An owner that receives external traffic is deleted in the foreground: its dependents
# are deleted first.

# METADATA
# scope: package
# schemas:
#   - input.policy.settings:
#       type: object
#       properties:
#         kinds:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of objects that receive external traffic, as Kind or group/Kind. If absent, networking.k8s.io/Ingress and gateway.networking.k8s.io/Gateway."
#         dependents:
#           type: array
#           minItems: 1
#           items: {type: string, pattern: '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*$'}
#           description: "Kinds of dependents, as Kind or group/Kind: an owner with a dependent of one of them is deleted in the foreground. If absent, none."
#         loadBalancers:
#           type: boolean
#           description: "Whether Services of type LoadBalancer are deleted in the foreground. If absent, true."
#       additionalProperties: false
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

propagate := verdict.with_reason(verdict.foreground, because) if because

else := verdict.abstain

validate := settings.validate({"kinds": "kinds", "dependents": "kinds", "loadBalancers": "flag"})

because := sprintf("a %s receives external traffic", [kinds.object]) if kinds.object in fronts

else := "a Service of type LoadBalancer receives external traffic" if {
	balancers
	input.object.spec.type == "LoadBalancer"
}

else := "a Service whose type is withheld may receive external traffic" if {
	balancers
	"object" in input.withheld
}

else := sprintf("it has dependents of kind %s, which receive external traffic", [among[0]])

fronts := settings.get("kinds", ["networking.k8s.io/Ingress", "gateway.networking.k8s.io/Gateway"])

balancers if {
	kinds.object == "Service"
	settings.get("loadBalancers", true)
}

# among are the kinds of dependents that the deletion waits for.
among := [kind | some kind in kinds.dependents; kind in settings.get("dependents", [])]
