// Tells NCCL what it must know to use us, through whichever door it offers: the answers of the env plugin, or the
// process's environment, set by the first init. What must be told is decided in cgx/activation.h.
#pragma once

#include <string>

#include "cgx/activation.h"
#include "cgx/settings.h"
#include "plugin/nccl_types.h"

namespace cgx::plugin {

/// What the signature of the init that was called says of NCCL's version.
enum class Caller : std::uint8_t {
  V6ToV9,   // up to 2.25
  V10,      // 2.26 and 2.27
  FromV11,  // from 2.28
  Unclear,  // no init yet, or one of collnet's, which v6 to v10 share
};

/// The version of the NCCL that called: what it told our env plugin; what ncclGetVersion answers in the library that
/// `log` is a function of, if that fits `caller`; what `caller` alone allows to say; or unknown.
NcclVersion callingNccl(ncclDebugLogger_t log, Caller caller);

/// This library's file, as the loader knows it.
std::string libraryPath();

/// The decision for this process, from the facts of this host.
activation::Decision decideHere(const Settings& settings, NcclVersion nccl);

/// How NCCL will see CollNet, for the banner.
struct CollnetState {
  bool on = false;      // switched on, in time
  bool byUser = false;  // on or off by the user's own value
};

/// Sets in the process's environment what can be set in time and the user has not set; nothing where the env plugin
/// answers. setenv is not safe beside other threads' getenv, so this is called once, by the first init, and
/// writes only what is missing; NCCL itself does the same there for nccl.conf.
CollnetState activate(const activation::Decision& decision, NcclVersion nccl);

/// The env plugin's side: NCCL has told us its version, asks for variables, and goes.
void announceNccl(NcclVersion nccl);
const char* answerFor(const char* name);

/// Frees what answerFor handed out. At the end of the library.
void forgetAnswers() noexcept;

}  // namespace cgx::plugin
