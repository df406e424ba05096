package gleaner_test

import data.gleaner

with_labels(labels) := {"metadata": {"labels": labels}}

with_annotations(annotations) := {"metadata": {"annotations": annotations}}

test_a_marked_object_stays if {
	gleaner.collect.decision == "Orphan" with input.object as with_labels({"keep": "true"})
	gleaner.collect.decision == "Abstain" with input.object as with_labels({})
}

test_a_deleted_object_waits_for_a_goodbye if {
	gleaner.finalize.decision == "Wait" with input.object as with_annotations({})
	gleaner.finalize.decision == "Done" with input.object as with_annotations({"goodbye": "true"})
}
