// Text among the constants of an ELF file, without loading it. Knows sections, not what the text means.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace cgx::tool {

/// Calls `see` with stretches of the file's read-only data, or of the whole file when it has no such section, until it
/// returns true. Stretches overlap by kElfOverlap bytes, so that no shorter text is cut. False: nothing seen, or no ELF
/// file that can be read. Sizes in the file are not trusted.
inline constexpr std::size_t kElfOverlap = 128;
bool searchElfConstants(const std::string& path, const std::function<bool(std::string_view)>& see);

}  // namespace cgx::tool
