#include "plugin/activate.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "cgx/log.h"
#include "cgx/topology.h"

namespace cgx::plugin {
namespace {

// Trivially destructible on purpose, like all static state of the library.
std::mutex answersMutex;
struct Answers {
  activation::Decision decision;
  std::set<std::string> handedOut;  // NCCL may keep a string until it asks for the same name again
};
Answers* answers = nullptr;  // under answersMutex, like the version
NcclVersion announced;

bool fits(NcclVersion nccl, Caller caller) {
  constexpr NcclVersion kV10{2, 26, 0};
  constexpr NcclVersion kV11{2, 28, 0};
  switch (caller) {
    case Caller::V6ToV9:
      return nccl < kV10;
    case Caller::V10:
      return nccl >= kV10 && nccl < kV11;
    case Caller::FromV11:
      return nccl >= kV11;
    case Caller::Unclear:
      return true;
  }
  return false;
}

/// One of the versions that have this signature, where they are alike to us; unknown where they are not.
NcclVersion impliedBy(Caller caller) {
  switch (caller) {
    case Caller::V6ToV9:
      return {2, 25, 1};
    case Caller::FromV11:
      return {2, 28, 7};
    case Caller::V10:
    case Caller::Unclear:
      return {};
  }
  return {};
}

NcclVersion askVersion(void* library) {
  const auto get = reinterpret_cast<ncclResult_t (*)(int*)>(::dlsym(library, "ncclGetVersion"));
  int code = 0;
  return get != nullptr && get(&code) == ncclSuccess ? NcclVersion::fromCode(code) : NcclVersion{};
}

/// NCCL is often loaded so that its symbols are not global (Python does); its logger's address still leads to it.
NcclVersion versionBehind(ncclDebugLogger_t log) {
  Dl_info info{};
  if (log == nullptr || ::dladdr(reinterpret_cast<void*>(log), &info) == 0 || info.dli_fname == nullptr) return {};
  void* library = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const NcclVersion version = askVersion(library);
  ::dlclose(library);
  return version;
}

Settings settingsOrDefaults() {
  Settings settings;
  (void)loadEnvironment(settings, nullptr);  // the net plugin's init names what is wrong
  return settings;
}

}  // namespace

std::string libraryPath() {
  Dl_info info{};
  if (::dladdr(&answersMutex, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

NcclVersion callingNccl(ncclDebugLogger_t log, Caller caller) {
  {
    const std::lock_guard lock(answersMutex);
    if (announced.known()) return announced;
  }
  for (const NcclVersion version : {versionBehind(log), askVersion(RTLD_DEFAULT)})
    if (version.known() && fits(version, caller)) return version;
  return impliedBy(caller);
}

activation::Decision decideHere(const Settings& settings, NcclVersion nccl) {
  activation::Facts facts;
  facts.nccl = nccl;
  facts.lookup = environment;
  facts.libraryPath = libraryPath();
  facts.intra = settings.intra;
  facts.gdr = settings.gdr;
  if (settings.intra == Intra::On) facts.host = topology::hostIdentity();
  facts.box = topology::box;
  return activation::decide(facts);
}

CollnetState activate(const activation::Decision& decision, NcclVersion nccl) {
  const bool answeredFor = [] {
    const std::lock_guard lock(answersMutex);
    return answers != nullptr;
  }();
  CollnetState state;
  std::string done;
  for (const activation::Wanted& one : decision.wanted) {
    bool counts = one.users.has_value() || answeredFor;
    if (!counts && activation::inTimeFromInit(one.name, nccl)) {
      counts = ::setenv(one.name, one.value.c_str(), 1) == 0;
      done += " " + std::string(one.name) + "=" + one.value + " (" + one.why + ")";
    }
    if (std::strcmp(one.name, "NCCL_COLLNET_ENABLE") != 0) continue;
    state.byUser = one.users.has_value();
    state.on = counts && activation::collnetOn(one.effective(), nccl);
  }
  if (!done.empty()) CGX_LOG(Info, Env, "set for NCCL %s:%s", nccl.text().c_str(), done.c_str());
  return state;
}

void announceNccl(NcclVersion nccl) {
  activation::Decision decision = decideHere(settingsOrDefaults(), nccl);
  const std::lock_guard lock(answersMutex);
  announced = nccl;
  if (answers == nullptr) answers = new Answers;
  answers->decision = std::move(decision);
}

const char* answerFor(const char* name) {
  if (!activation::mayDecide(name)) return environment(name);
  const std::lock_guard lock(answersMutex);
  if (answers == nullptr) return environment(name);
  // The program may have named us since NCCL's first call, or set a variable of its own between two communicators.
  if (!answers->decision.named) answers->decision = decideHere(settingsOrDefaults(), announced);
  const activation::Wanted* wanted = answers->decision.find(name);
  if (wanted == nullptr || activation::usersValue(name, environment)) return environment(name);
  return answers->handedOut.insert(wanted->value).first->c_str();
}

void forgetAnswers() noexcept {
  const std::lock_guard lock(answersMutex);
  delete answers;
  answers = nullptr;
}

}  // namespace cgx::plugin
