#include "advise/candidate_command.h"

namespace tare::advise {

std::vector<std::string> ServeFlags(const Candidate& candidate) {
  std::vector<std::string> flags = {"--dtype", candidate.dtype};
  if (candidate.threads > 0) {
    flags.push_back("--threads");
    flags.push_back(std::to_string(candidate.threads));
  }
  flags.insert(flags.end(), candidate.flags.begin(), candidate.flags.end());
  return flags;
}

std::vector<std::string> ServeCommand(const std::string& program, const Candidate& candidate,
                                      int port) {
  std::vector<std::string> command = {program, "serve", candidate.model.string(), "--port",
                                      std::to_string(port)};
  const std::vector<std::string> flags = ServeFlags(candidate);
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

}  // namespace tare::advise
