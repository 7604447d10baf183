#include "sizes.h"

#include <charconv>

namespace cgx::tool {
namespace {

constexpr std::size_t kMaxRows = 4096;  // a typing error must not make a table without end

Status malformed(std::string_view text) {
  return Status::invalid("--sizes: \"" + std::string(text) +
                         "\" is not a size; accepted: 1K:256M:x2, 1M:8M:+1M, 64K,1M");
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t stop = text.find(at);
    parts.push_back(text.substr(0, stop));
    if (stop == std::string_view::npos) return parts;
    text.remove_prefix(stop + 1);
  }
}

/// "x2" or "+1M": the next size after `bytes`, or 0 when the step is not understood or leads nowhere.
std::size_t stepAfter(std::size_t bytes, std::string_view step) {
  if (step.size() < 2) return 0;
  std::size_t next = 0;
  const Result<std::size_t> amount = parseSize(step.substr(1));
  if (!amount.ok()) return 0;
  const bool overflow = step.front() == 'x'   ? __builtin_mul_overflow(bytes, amount.value(), &next)
                        : step.front() == '+' ? __builtin_add_overflow(bytes, amount.value(), &next)
                                              : true;
  return overflow || next <= bytes ? 0 : next;
}

}  // namespace

Result<std::size_t> parseSize(std::string_view text) {
  std::size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return malformed(text);
  const std::string_view suffix(stop, static_cast<std::size_t>(text.data() + text.size() - stop));
  int shift = 0;
  if (!suffix.empty() && suffix != "B") {
    static constexpr std::string_view kUnits = "KMG";
    const std::size_t unit = kUnits.find(static_cast<char>(suffix.front() & ~0x20));  // upper case
    const std::string_view rest = suffix.substr(1);
    if (unit == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB")) return malformed(text);
    shift = 10 * static_cast<int>(unit + 1);
  }
  if (value > (std::size_t{1} << 40 >> shift)) return malformed(text);  // more than 1 TiB
  return value << shift;
}

Result<std::vector<std::size_t>> parseSizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const std::string_view item : split(text, ',')) {
    const std::vector<std::string_view> parts = split(item, ':');
    if (parts.size() > 3) return malformed(item);
    Result<std::size_t> first = parseSize(parts[0]);
    Result<std::size_t> last = parts.size() > 1 ? parseSize(parts[1]) : first;
    if (!first.ok()) return first.status();
    if (!last.ok()) return last.status();
    const std::string_view step = parts.size() > 2 ? parts[2] : "x2";
    if (first.value() == 0 || first.value() > last.value()) return malformed(item);
    for (std::size_t bytes = first.value(); bytes <= last.value();) {
      sizes.push_back(bytes);
      const std::size_t next = stepAfter(bytes, step);
      if (next == 0 || sizes.size() > kMaxRows) return malformed(item);
      bytes = next;
    }
  }
  return sizes;
}

std::string sizeText(std::size_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  int unit = 0;
  while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace cgx::tool
