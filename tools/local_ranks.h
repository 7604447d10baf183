// Runs this program once for each local rank and watches over the processes. Knows processes; knows nothing of what
// they do.
#pragma once

#include <string>
#include <vector>

namespace cgx::tool {

/// Starts `ranks` copies of this program with `arguments` and "--rank k --nranks n --root host:port" and waits for all.
/// When one fails, the others get a few seconds to end by themselves. Returns the exit status for the whole: the
/// largest, or 2 when one was killed (which is told on stderr). The ranks die with this process. Must be called before
/// any thread exists.
int runLocalRanks(const std::vector<std::string>& arguments, int ranks);

}  // namespace cgx::tool
