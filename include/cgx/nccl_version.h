// NCCL's version as a value. What a version means for us is in activation.h.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace cgx {

/// Ordered as releases are. A NcclVersion{} is "unknown" and lies before all others.
struct NcclVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend constexpr auto operator<=>(const NcclVersion&, const NcclVersion&) = default;
  constexpr bool known() const noexcept { return major > 0; }
  /// "2.28.9", or "unknown".
  std::string text() const;

  /// ncclGetVersion's number: 22809, and 2708 up to 2.8. What is no such number is unknown.
  static NcclVersion fromCode(int code) noexcept;
  /// "2.28.9" and whatever follows it ("2.28.9+cuda13.0"). Three numbers with dots, each below 1000, or nothing.
  static std::optional<NcclVersion> parse(std::string_view text) noexcept;
};

}  // namespace cgx
