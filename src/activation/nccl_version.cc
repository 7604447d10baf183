#include "cgx/nccl_version.h"

#include <charconv>

namespace cgx {

std::string NcclVersion::text() const {
  if (!known()) return "unknown";
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

NcclVersion NcclVersion::fromCode(int code) noexcept {
  if (code >= 10000) return {code / 10000, code / 100 % 100, code % 100};
  if (code >= 1000) return {code / 1000, code / 100 % 10, code % 100};  // NCCL_VERSION_CODE up to 2.8
  return {};
}

std::optional<NcclVersion> NcclVersion::parse(std::string_view text) noexcept {
  NcclVersion version;
  for (int* part : {&version.major, &version.minor, &version.patch}) {
    if (part != &version.major) {
      if (!text.starts_with('.')) return std::nullopt;
      text.remove_prefix(1);
    }
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *part);
    if (error != std::errc() || *part >= 1000) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  }
  if (!version.known()) return std::nullopt;
  return version;
}

}  // namespace cgx
