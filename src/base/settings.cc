#include "cgx/settings.h"

namespace cgx {}
