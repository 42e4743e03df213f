#include "families.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "fp8/base/text.h"

namespace fp8::foreign {
namespace {

struct Family {
  std::string_view glob;  // of the name in small letters
  std::string_view name;
};

constexpr std::array<Family, 91> kFamilies = {{
    {"*deepseek-r1-distill*", ""},
    {"*deepseek-coder-6*", ""},
    {"*deepseek-llm*", ""},
    {"*nvfp4*", "a checkpoint in NVFP4"},
    {"*gptq*", "a checkpoint in GPTQ"},
    {"*nf4*", "a checkpoint in NF4"},
    {"*nemotron-super-49b*", "DeciLM"},
    {"*nemotron-ultra-253b*", "DeciLM"},
    {"*llama-3*nemotron*", ""},
    {"*paddleocr*", "vision"},
    {"*vision*", "vision"},
    {"*-vl-*", "vision"},
    {"*-vl", "vision"},
    {"*llava*", "vision"},
    {"*pixtral*", "vision"},
    {"*smolvlm*", "vision"},
    {"*internvl*", "vision"},
    {"*voxtral*", "audio"},
    {"*audio*", "audio"},
    {"*omni*", "audio"},
    {"*magistral*2507*", ""},
    {"*magistral*", "Mistral with vision"},
    {"*mistral-small-3.1*", "Mistral with vision"},
    {"*mistral-small-3.2*", "Mistral with vision"},
    {"*mistral-medium-3*", "Mistral with vision"},
    {"*mistral-large-3*", "Mistral with vision"},
    {"*mistral-small-4*", "Mistral with vision"},
    {"*ministral-3*", "Mistral with vision"},
    {"*devstral-small-2*", "Mistral with vision"},
    {"*devstral-2*", "Mistral with vision"},
    {"*deepseek*", "DeepSeek"},
    {"*glm*", "GLM"},
    {"*gpt-oss*", "GPT-OSS"},
    {"*gpt2*", "GPT-2"},
    {"*gpt-j*", "GPT-J"},
    {"*gpt-neox*", "GPT-NeoX"},
    {"*nemotron*", "Nemotron"},
    {"*kimi*", "Kimi"},
    {"*moonlight*", "DeepSeek"},
    {"*minimax*", "MiniMax"},
    {"*gemma*", "Gemma"},
    {"*microsoft/phi*", "Phi"},
    {"*falcon3*", ""},
    {"*falcon-h1*", "Falcon-H1"},
    {"*falcon-e*", "BitNet"},
    {"*bitnet*", "BitNet"},
    {"*falcon*", "Falcon"},
    {"*mamba*", "Mamba"},
    {"*jamba*", "Jamba"},
    {"*mpt-*", "MPT"},
    {"*pythia*", "GPT-NeoX"},
    {"*redpajama*", "GPT-NeoX"},
    {"*cerebras*", "GPT-2"},
    {"*stablelm*", "StableLM"},
    {"*qwen3-next*", "Qwen3-Next"},
    {"*qwen3-coder-next*", "Qwen3-Next"},
    {"*qwen3.5*", "Qwen3.5"},
    {"*qwen3.6*", "Qwen3.5"},
    {"*qwen3.8*", "Qwen3.5"},
    {"*qwen1.5-moe*", "Qwen2-MoE"},
    {"*qwen/qwen-*", "Qwen of 2023"},
    {"*llama-4*", "Llama 4"},
    {"*olmo*", "OLMo"},
    {"*granite*", "Granite"},
    {"*cohere*", "Cohere"},
    {"*command*", "Cohere"},
    {"*/aya*", "Cohere"},
    {"*baichuan*", "Baichuan"},
    {"*ernie*", "ERNIE"},
    {"*hy3*", "Hunyuan"},
    {"*hunyuan*", "Hunyuan"},
    {"*inclusionai*", "Ling"},
    {"*/ling-*", "Ling"},
    {"*starcoder*", "StarCoder"},
    {"*dbrx*", "DBRX"},
    {"*seed-oss*", "Seed-OSS"},
    {"*lfm2*", "LFM2"},
    {"*smollm3*", "SmolLM3"},
    {"*apertus*", "Apertus"},
    {"*mimo*", "MiMo"},
    {"*/t5*", "T5"},
    {"*-t5*", "T5"},
    {"*bert*", "BERT"},
    {"*trinity*", "AFMoE"},
    {"*afm-4*", "Arcee AFM"},
    {"*btlm*", "BTLM"},
    {"*replit*", "Replit"},
    {"*hy-mt*", "Hunyuan"},
    {"*step-3*", "Step"},
    {"*laguna*", "Laguna"},
    {"*muse-*", "Muse"},
}};

}  // namespace

std::string_view untrained_family(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* const found =
      std::ranges::find_if(kFamilies, [&](const Family& family) { return glob_match(family.glob, small); });
  return found == kFamilies.end() ? std::string_view() : found->name;
}

std::string family_reason(std::string_view family) {
  return std::string(family) +
         " is not trained here; families that are: llama, mistral, qwen2, qwen3, mixtral, qwen3_moe";
}

}  // namespace fp8::foreign
