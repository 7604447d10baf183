// Every byte that crosses a link, part 1: rules for all of it and the header of a collective message.
// Part 2, the payload of tiles: wire_tiles.h. Part 3, handles, hellos and frames of the transports: wire_link.h.
//
// All fields are little-endian, fixed width and naturally aligned; padding is explicit and zero. Version 1, provisional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cgx::wire {

inline constexpr std::uint16_t kVersion = 1;

}  // namespace cgx::wire
