#include "doctor/doctor.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "doctor/hosts.h"
#include "doctor/lines.h"
#include "doctor/ranks.h"
#include "doctor/report.h"
#include "placement.h"
#include "session.h"

namespace cgx::tool::doctor {
namespace {

constexpr const char* kFooter = R"(
Start it as the job is started, with the job's environment. Under torchrun (--no-python), mpirun or srun, or with --rank, --nranks
and --root, all ranks compare how they are set up and try to reach each other on the interfaces that the plugin chooses; rank 0
tells what they found. With --hosts it starts itself on each host, in the environment that a command gets there, and needs no
port for itself. Otherwise it looks at this host alone.

Exit status, the same on every rank: 0 no problem; 1 problems; 2 when it could not be run.)";

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

int refuse(const Status& why) {
  std::fprintf(stderr, "cgx doctor: %s\n", why.text().c_str());
  return kCannotRun;
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

/// Rank 0 tells; the others only end as it does. A rank that does not come is a problem of the job, too.
int together(const Placement& placement, const Facts& facts, const Lookup& lookup, const Options& options) {
  const bool tells = placement.rank == 0;
  const auto failed = [&](const Status& why) {
    if (!tells) {
      std::fprintf(stderr, "cgx doctor: rank %d: %s\n", placement.rank, why.text().c_str());
      return kProblems;
    }
    const Check missing =
        problem("together", why.text(),
                "cgx doctor must run on every rank, and all must reach TCP port " + std::to_string(placement.port) +
                    " of " + placement.host + " (or another --root)");
    return conclude({{{facts.host, diagnose(facts)}}, {missing}}, options);
  };
  const Meeting meeting{placement.rank,     placement.ranks, placement.host,        placement.port,
                        placement.listenFd, "cgx doctor",    options.timeoutSeconds};
  Result<std::unique_ptr<Rendezvous>> rendezvous = meet(meeting);
  if (!rendezvous.ok()) return failed(rendezvous.status());
  const Result<Gathered> all = takePart(*rendezvous.value(), placement.rank, facts, lookup, options.reachSeconds);
  if (!all.ok()) {
    const std::optional<Status> why = rendezvous.value()->giveUp(all.status());
    return why ? failed(*why) : kProblems;
  }
  const Report report = merge(all.value());
  if (tells) return conclude(report, options);
  return problems(report) == 0 ? 0 : kProblems;
}

/// A process that --hosts has started: it only hands its part over.
int asMember(const Facts& facts, const Lookup& lookup, const Options& options) {
  const std::unique_ptr<Rendezvous> rendezvous = overLines(STDIN_FILENO, STDOUT_FILENO);
  const Result<Gathered> all = takePart(*rendezvous, options.member, facts, lookup, options.reachSeconds);
  return all.ok() ? 0 : refuse(all.status());
}

int askAll(const Lookup& lookup, const Options& options) {
  std::error_code none;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", none).string();
  HostsPlan plan;
  plan.hosts = options.hosts;
  if (!options.launcher.empty()) plan.launcher = options.launcher;
  plan.timeoutSeconds = options.timeoutSeconds;
  plan.reachSeconds = options.reachSeconds;
  Result<std::vector<std::string>> words = exported(options.exports, lookup);
  if (!words.ok()) return refuse(words.status());
  plan.words = std::move(words).value();
  std::ostringstream reach;
  reach << options.reachSeconds;
  for (const std::string& word : {options.program.empty() ? own : options.program, std::string("doctor"),
                                  "--comms=" + std::to_string(options.comms), "--reach=" + reach.str()})
    plan.words.push_back(word);
  if (options.nodes > 0) plan.words.push_back("--nodes=" + std::to_string(options.nodes));
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    Result<std::string> line = commandLine(plan, i);
    if (!line.ok()) return refuse(line.status());
    std::printf("# %s\n", line->c_str());
    lines.push_back(std::move(line).value());
  }
  std::fflush(stdout);
  const HostsOutcome outcome = askHosts(plan, lines);
  Report report = merge(outcome.all);
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!outcome.failed[i].empty() && !outcome.all.findings[i])
      report.together.push_back(
          problem("host", plan.hosts[i] + ": the command " + outcome.failed[i],
                  "the command above must work by itself: a key without a passphrase to type, a "
                  "known host, cgx at that path (--program); or start it otherwise (--launcher)"));
  return conclude(report, options);
}

/// Nothing: this host by itself.
Result<std::optional<Placement>> placementOf(const Options& options, const Lookup& lookup) {
  if (options.rank >= 0 || options.nranks > 0) {
    Result<Placement> placement = placementFromFlags(options.rank, options.nranks, options.root, -1);
    if (!placement.ok()) return std::move(placement).status();
    return std::optional<Placement>(std::move(placement).value());
  }
  if (options.alone || options.member >= 0) return std::optional<Placement>();
  Result<std::optional<Placement>> launched = placementFromLauncher(lookup, options.root, ::getppid());
  if (launched.ok() && launched.value() && launched.value()->ranks == 1) return std::optional<Placement>();
  return launched;
}

}  // namespace

void addFlags(CLI::App& command, Options* options) {
  command.add_option("--json", options->json, "Write the checks to this file, too")->type_name("FILE");
  command.add_option("--comms", options->comms, "Communicators that the job will have at a time, to sum up staging")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--nodes", options->nodes, "Nodes of the job, for the same purpose")
      ->check(CLI::Range(2, 1 << 20));
  command.add_flag("--alone", options->alone, "This host only, also under a launcher");
  command.add_option("--rank", options->rank, "This process is one rank of --nranks")->check(CLI::Range(0, 1 << 20));
  command.add_option("--nranks", options->nranks, "How many ranks there are")->check(CLI::Range(1, 1 << 20));
  command.add_option("--root", options->root, "host:port where rank 0 waits for the others")->type_name("HOST:PORT");
  command.add_option("--timeout", options->timeoutSeconds, "Seconds to wait for ranks to come")->capture_default_str();
  command.add_option("--reach", options->reachSeconds, "Seconds that hosts may take to reach each other")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  auto* hosts = command.add_option("--hosts", options->hosts, "Start it on each of these hosts and compare them");
  hosts->delimiter(',')->type_name("HOST,...")->excludes("--rank")->excludes("--alone");
  command
      .add_option("--launcher", options->launcher,
                  "How to start a command on {host}; {command}: as one word for a shell there; without it, it follows "
                  "word by word (default: " +
                      std::string(kSshTemplate) + ")")
      ->envname("CGX_DOCTOR_LAUNCHER")
      ->type_name("TEXT");
  command.add_option("--program", options->program, "cgx on the hosts (default: the path of this one)")
      ->needs(hosts)
      ->type_name("PATH");
  command.add_option("-x", options->exports, "Hand on a variable to the hosts, as mpirun does; may be repeated")
      ->needs(hosts)
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  command.add_option("--member", options->member)->group("");  // from --hosts
  command.footer(kFooter);
}

int run(const Options& options, const Lookup& lookup) {
  if (!options.hosts.empty()) return askAll(lookup, options);
  setPluginLog("cgx doctor", -1, false);
  const std::vector<FileLine> lines = fileLines(lookup, "");
  const Lookup given = before(lookup, lines);
  adopt(lines);
  Result<std::optional<Placement>> placement = placementOf(options, lookup);
  if (!placement.ok()) return refuse(placement.status());
  if (placement.value()) setPluginLog("cgx doctor", placement.value()->rank, false);
  Facts facts = collect(given);
  facts.comms = options.comms;
  facts.nodes = options.nodes;
  if (options.member >= 0) return asMember(facts, lookup, options);
  if (placement.value()) return together(*placement.value(), facts, lookup, options);
  return conclude({{{facts.host, diagnose(facts)}}, {}}, options);
}

}  // namespace cgx::tool::doctor
