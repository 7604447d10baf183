// Which targets this CPU can run, and the one that a setting names.
#include <array>
#include <string>

#include "cgx/codec.h"
#include "codec/scalar.h"

namespace cgx::codec {

std::span<const Kernels* const> targets() noexcept {
  static constexpr std::array<const Kernels*, 1> kTargets{&kScalar};
  return kTargets;
}

Result<const Kernels*> select(std::string_view simd) {
  std::string names = "auto";
  for (const Kernels* target : targets()) {
    if (simd == "auto" || simd == target->name) return target;
    names.append(", ").append(target->name);
  }
  return Status::invalid("no SIMD target \"" + std::string(simd) + "\" on this CPU; there are: " + names);
}

}  // namespace cgx::codec
