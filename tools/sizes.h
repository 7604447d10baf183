// "1K:256M:x2" as a list of sizes in bytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cgx/status.h"

namespace cgx::tool {

/// "64K" -> 65536. Suffixes K, M, G (1024 each, also "KiB" and "KB"); no suffix: bytes.
Result<std::size_t> parseSize(std::string_view text);
/// "first:last:xFactor", "first:last:+step", "first:last" (x2), or sizes separated by commas.
Result<std::vector<std::size_t>> parseSizes(const std::string& text);
/// 65536 -> "64 KiB", 1000 -> "1000 B".
std::string sizeText(std::size_t bytes);

}  // namespace cgx::tool
