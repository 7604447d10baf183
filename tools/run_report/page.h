// Parts of the page that runHtml() puts together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run_report/run.h"

namespace cgx::tool::page {

extern const char* const kStyle;  // the style sheet; no character in it needs escaping

/// Plots over the run, by size and by rank.
std::string timePlots(const WholeRun& run);
std::string sizePlots(const WholeRun& run);
std::string rankPlots(const WholeRun& run);

/// 1234567 as 1,234,567.
std::string countText(std::uint64_t value);
/// The name of a size: at most so many bytes.
std::string sizeName(std::uint64_t upTo);

}  // namespace cgx::tool::page
