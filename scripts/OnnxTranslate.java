// Translate with an exported file. Requires onnxruntime's jar and the library of
// onnxruntime-extensions.
//
// java -cp onnxruntime-1.31.1.jar scripts/OnnxTranslate.java translate.onnx libortextensions.so …
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;

class OnnxTranslate {
    static final int INT_BYTES = 4;
    static final long[] SCALAR = {};

    public static void main(String[] arguments) throws Exception {
        String[] texts = Arrays.copyOfRange(arguments, 2, arguments.length);
        try (var environment = OrtEnvironment.getEnvironment();
                var options = new OrtSession.SessionOptions();
                var nBest = scalar(environment, 2)) {
            options.registerCustomOpLibrary(arguments[1]);
            // Only errors: onnxruntime warns about inputs with defaults.
            options.setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_ERROR);
            // Java's `run` refuses inputs with defaults, so a session has its own defaults.
            options.addInitializer("n_best", nBest);
            try (var session = environment.createSession(arguments[0], options);
                    var text = OnnxTensor.createTensor(environment, texts);
                    var outputs = session.run(Map.of("text", text))) {
                var translations = (String[][]) outputs.get("translations").get().getValue();
                var scores = (float[][]) outputs.get("scores").get().getValue();
                print(texts, translations, scores);
            }
        }
    }

    /** Return an int32 tensor without dimensions, in memory that a session can read later. */
    static OnnxTensor scalar(OrtEnvironment environment, int value) throws Exception {
        IntBuffer buffer =
                ByteBuffer.allocateDirect(INT_BYTES).order(ByteOrder.nativeOrder()).asIntBuffer();
        buffer.put(0, value);
        return OnnxTensor.createTensor(environment, buffer, SCALAR);
    }

    static void print(String[] texts, String[][] translations, float[][] scores) {
        for (int row = 0; row < texts.length; row++) {
            System.out.println(texts[row]);
            for (int rank = 0; rank < scores[row].length; rank++) {
                String score = String.format(Locale.ROOT, "%.3f", scores[row][rank]);
                System.out.println(score + "\t" + translations[row][rank]);
            }
        }
    }
}
