// The scalar target's function table, for dispatch.
#pragma once

#include "cgx/codec.h"

namespace cgx::codec {

extern const Kernels kScalar;

}  // namespace cgx::codec
