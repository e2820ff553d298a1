"""The server that the others are compared with: FastAPI with one route, a constant, and nothing around it."""

import sys


def main() -> None:
    """Serve at the port that was named."""
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/constant")
    async def constant() -> dict[str, str]:
        return {"status": "ok"}

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
