// Translate with an exported file. Requires .NET 10.
//
// dotnet run scripts/OnnxTranslate.cs translate.onnx 'forty-two' …
#:package Microsoft.ML.OnnxRuntime@1.31.1
#:package Microsoft.ML.OnnxRuntime.Extensions@0.14.0
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

static class OnnxTranslate
{
    static void Main(string[] arguments)
    {
        string[] texts = arguments.Skip(1).ToArray();
        using (var options = new SessionOptions())
        {
            options.RegisterOrtExtensions();
            // Only errors: onnxruntime warns about inputs with defaults.
            options.LogSeverityLevel = OrtLoggingLevel.ORT_LOGGING_LEVEL_ERROR;
            using (var session = new InferenceSession(arguments[0], options))
            {
                Print(texts, session);
            }
        }
    }

    static void Print(string[] texts, InferenceSession session)
    {
        var text = new DenseTensor<string>(texts, new[] { texts.Length });
        var nBest = new DenseTensor<int>(new[] { 2 }, new int[] { });
        var inputs = new List<NamedOnnxValue>
        {
            NamedOnnxValue.CreateFromTensor("text", text),
            NamedOnnxValue.CreateFromTensor("n_best", nBest),
        };
        using (var outputs = session.Run(inputs, new[] { "translations", "scores" }))
        {
            var translations = outputs[0].AsTensor<string>();
            var scores = outputs[1].AsTensor<float>();
            for (int row = 0; row < texts.Length; row++)
            {
                Console.WriteLine(texts[row]);
                for (int rank = 0; rank < scores.Dimensions[1]; rank++)
                {
                    var score = scores[row, rank].ToString("F3", CultureInfo.InvariantCulture);
                    Console.WriteLine($"{score}\t{translations[row, rank]}");
                }
            }
        }
    }
}
