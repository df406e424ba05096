# An owner that fronts load from outside is deleted in foreground: what it stands on
# goes first, and it stays in sight until then.
package gleaner

import data.gleaner.sdk.kinds
import data.gleaner.sdk.settings
import data.gleaner.sdk.verdict

propagate := verdict.because(verdict.foreground, because) if because

else := verdict.abstain

validate := settings.checked({"kinds": "kinds", "dependents": "kinds", "loadBalancers": "flag"})

because := sprintf("a %s fronts load from outside", [kinds.object]) if kinds.object in fronts

else := "a Service of type LoadBalancer fronts load from outside" if {
	balancers
	input.object.spec.type == "LoadBalancer"
}

else := "a Service whose type is withheld may front load from outside" if {
	balancers
	"object" in input.withheld
}

else := sprintf("it has dependents of kind %s, which front load from outside", [among[0]])

fronts := settings.get("kinds", ["networking.k8s.io/Ingress", "gateway.networking.k8s.io/Gateway"])

balancers if {
	kinds.object == "Service"
	settings.get("loadBalancers", true)
}

# among are the kinds of its dependents that are waited for.
among := [kind | some kind in kinds.dependents; kind in settings.get("dependents", [])]
