// The exchange of `cgx doctor --hosts`: lines over the standard input and output of a program on each host, so that it
// needs no port. Each line of ours has a mark, as shells on the way may print things, too.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous.h"

namespace cgx::tool::doctor {

/// "@cgx-doctor <text>\n"; `text` has no line break.
std::string markedLine(const std::string& text);
/// Takes the oldest marked line out of `received`, and whatever other lines came before it.
std::optional<std::string> takeMarkedLine(std::string* received);

/// All parts as one text, and back; an error for what is none.
std::string packParts(const std::vector<std::string>& parts);
Result<std::vector<std::string>> unpackParts(const std::string& text);

/// A host's side: every all-gather writes one line to `out` and waits for one from `in`. The end of `in` is an error.
std::unique_ptr<Rendezvous> overLines(int in, int out);

}  // namespace cgx::tool::doctor
