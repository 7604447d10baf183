// The statistics file: its name, and writing it so that readers see the old text or the new one, never a part.
#pragma once

#include <string>
#include <string_view>

#include "cgx/status.h"

namespace cgx::statistics {

/// `pattern` with %h, %p, %r and %% replaced. A slash in the host's name becomes an underscore.
std::string expand(std::string_view pattern, const std::string& host, long pid, int rank);

/// Replaces the file by way of a new one beside it. A link at `path` is replaced itself, never followed, and nothing
/// that is there is opened. Code::System with the reason; then no file of ours is left behind.
Status replaceFile(const std::string& path, std::string_view text);

/// Whether somebody put a file named `path`.request; it is gone then. A link counts and its target stays.
bool takeRequest(const std::string& path) noexcept;

}  // namespace cgx::statistics
