// Statistics as text. Pure; the forms are described in docs/statistics.md.
#pragma once

#include <string>

#include "snapshot.h"

namespace cgx::statistics {

inline constexpr int kSchemaVersion = 1;

std::string toJson(const Snapshot& snapshot);
/// For the textfile collector of Prometheus's node_exporter.
std::string toPrometheus(const Snapshot& snapshot);
/// One line for the log.
std::string summary(const Record& record);
/// What to say of one without any operation.
std::string unused(const Record& record);

}  // namespace cgx::statistics
