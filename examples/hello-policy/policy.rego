# Two hooks of one module: a marked object is kept when its owner is deleted, and a
# deleted object is kept until an annotation says goodbye.
package gleaner

import data.gleaner.sdk.meta
import data.gleaner.sdk.verdict

collect := verdict.with_reason(verdict.orphan, "it has keep=true") if meta.has_label("keep", "true")

else := verdict.abstain

finalize := verdict.done if meta.has_annotation("goodbye", "true")

else := verdict.with_reason(verdict.wait_for("1m"), "nobody has said goodbye: annotate it with goodbye=true")
