// The subcommands of the tare binary, one file each. A command parses its words, calls a room,
// prints, and returns an exit code; it holds no logic of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace tare::app {

// Exit codes scripts rely on.
inline constexpr int kSuccess = 0;
inline constexpr int kAnswerIsNo = 1;    // invalid run, failed gate, broken chain
inline constexpr int kWrongUsage = 2;    // flags, plan keys
inline constexpr int kOutsideFault = 3;  // file, network, memory

// Set by the chosen subcommand's callback; main calls it after parsing.
struct Invocation {
  std::function<int()> run;
};

// Prints "tare: message" on stderr and returns the exit code of the error's kind.
int Report(const Error& error);

// Each adds one subcommand to the program.
void AddServe(CLI::App& app, Invocation& invocation);
void AddGenerate(CLI::App& app, Invocation& invocation);
void AddBench(CLI::App& app, Invocation& invocation);
void AddInspect(CLI::App& app, Invocation& invocation);
void AddLoad(CLI::App& app, Invocation& invocation);
void AddRuns(CLI::App& app, Invocation& invocation);
void AddEcon(CLI::App& app, Invocation& invocation);
void AddCheck(CLI::App& app, Invocation& invocation);
void AddEval(CLI::App& app, Invocation& invocation);
void AddQuantize(CLI::App& app, Invocation& invocation);
void AddAdvise(CLI::App& app, Invocation& invocation);
void AddSim(CLI::App& app, Invocation& invocation);

}  // namespace tare::app
