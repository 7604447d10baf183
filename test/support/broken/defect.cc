// The defect of one build of the reference plugin, named by its compile definition.
#include "defects.h"

namespace cgx::broken {

constinit const Defect kDefect = Defect::CGX_DEFECT;

}  // namespace cgx::broken
