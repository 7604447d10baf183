// `cgx doctor` on several ranks: they tell each other how they are set up, try to reach each other, and put together
// what they found. Knows the order of these things.
#pragma once

#include "doctor/compare.h"
#include "doctor/report.h"
#include "rendezvous.h"

namespace cgx::tool::doctor {

/// One rank's part. `facts` of this process; `lookup` is its environment. Empty parts in an exchange are ranks that did
/// not take part. Every rank gets the same. `reachSeconds` bounds the attempts to reach others.
Result<Gathered> takePart(Rendezvous& rendezvous, int rank, Facts facts, const Lookup& lookup, double reachSeconds);

/// "rank 3 on node07"; for a rank that is missing "rank 3".
std::vector<std::string> rankNames(const std::vector<std::optional<Card>>& cards);

/// What all found, and what shows by comparison. Ranks without findings are left out.
Report merge(const Gathered& all);

}  // namespace cgx::tool::doctor
