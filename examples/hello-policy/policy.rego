# Two hooks of one module: an object that is marked stays when its owner goes, and
# one that is deleted stays until somebody has said goodbye to it.
package gleaner

import data.gleaner.sdk.meta
import data.gleaner.sdk.verdict

collect := verdict.because(verdict.orphan, "it has keep=true") if meta.labelled("keep", "true")

else := verdict.abstain

finalize := verdict.done if meta.annotated("goodbye", "true")

else := verdict.because(verdict.wait_for("1m"), "nobody has said goodbye: annotate it with goodbye=true")
