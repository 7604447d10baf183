// What all ranks or hosts have found, as text and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "doctor/checks.h"

namespace cgx::tool::doctor {

/// One who looked: "rank 3 on node07", or a host's name alone.
struct Witness {
  std::string name;
  std::vector<Check> checks;
};

struct Report {
  std::vector<Witness> witnesses;  // one: a host by itself
  std::vector<Check> together;     // what only shows when they are compared
};

std::size_t problems(const Report& report);

/// One line a check, the remedy below it. What all say alike is said once; else each line ends with who says it.
std::string text(const Report& report);
/// {"problems": n, "together": [check], "witnesses": [{"name": ..., "checks": [check]}]}; a check has "check",
/// "verdict" (ok, note, problem), "text" and "remedy".
std::string json(const Report& report);

}  // namespace cgx::tool::doctor
