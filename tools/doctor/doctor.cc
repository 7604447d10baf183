#include "doctor/doctor.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "doctor/report.h"
#include "session.h"

namespace cgx::tool::doctor {
namespace {

constexpr int kProblems = 1;
constexpr int kCannotRun = 2;

/// As NCCL does, so that the plugin, which is loaded into this process, sees what it would see in a job.
void adopt(const std::vector<FileLine>& lines) {
  for (const FileLine& line : lines) (void)::setenv(line.name.c_str(), line.value.c_str(), 0);
}

/// The environment as it was given, which tells where each value comes from.
Lookup before(const Lookup& lookup, const std::vector<FileLine>& lines) {
  std::map<std::string, bool> added;
  for (const FileLine& line : lines)
    if (lookup(line.name.c_str()) == nullptr) added[line.name] = true;
  return [lookup, added](const char* name) { return added.contains(name) ? nullptr : lookup(name); };
}

int conclude(const Report& report, const Options& options) {
  std::fputs(text(report).c_str(), stdout);
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << json(report);
    out.close();
    if (!out) {
      std::fprintf(stderr, "cgx doctor: cannot write %s\n", options.json.c_str());
      return kCannotRun;
    }
  }
  return problems(report) == 0 ? 0 : kProblems;
}

}  // namespace

void addFlags(CLI::App& command, Options* options) {
  command.add_option("--json", options->json, "Write the checks to this file, too")->type_name("FILE");
  command.add_option("--comms", options->comms, "Communicators that the job will have at a time, to sum up staging")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--nodes", options->nodes, "Nodes of the job, for the same purpose")
      ->check(CLI::Range(2, 1 << 20));
}

int run(const Options& options, const Lookup& lookup) {
  setPluginLog("cgx doctor", -1, false);
  const std::vector<FileLine> lines = fileLines(lookup, "");
  const Lookup given = before(lookup, lines);
  adopt(lines);
  Facts facts = collect(given);
  facts.comms = options.comms;
  facts.nodes = options.nodes;
  return conclude({{{facts.host, diagnose(facts)}}, {}}, options);
}

}  // namespace cgx::tool::doctor
